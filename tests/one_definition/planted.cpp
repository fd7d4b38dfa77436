// Types and a function that planted.cu defines otherwise.
namespace muo::planted {

struct Fields {
  int width;
};
struct Kinds {
  int first;
};
enum class Values { kFirst, kSecond };
struct Base {
  virtual ~Base() = default;
  int width = 0;
};
struct Same {
  int width;
};
inline int result() { return 1; }
namespace {
struct Unnamed {
  int width;
};
}  // namespace

int host(Fields fields, Kinds kinds, Values values, const Base& base, Same same) {
  const Unnamed unnamed{result()};
  return fields.width + kinds.first + static_cast<int>(values) + base.width + same.width +
         unnamed.width;
}

}  // namespace muo::planted
