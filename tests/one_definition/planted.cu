// Types and a function that planted.cpp defines otherwise, but for what is the same or has no name
// elsewhere.
#include "runtime/cuda/vector.h"

namespace muo::planted {

struct Fields {
  float4 width;
};
enum class Kinds { kFirst };
enum class Values { kFirst, kThird };
struct Base {
  int width = 0;
};
struct Same {
  int width;
};
inline float result() { return 1.0F; }
namespace {
struct Unnamed {
  float4 width;
};
}  // namespace

__global__ void kernel(Fields fields, Kinds kinds, Values values, Base base, Same same,
                       float* out) {
  const Unnamed unnamed{fields.width};
  *out = unnamed.width.x + static_cast<float>(kinds) + static_cast<float>(values) +
         static_cast<float>(base.width + same.width) + result();
}

}  // namespace muo::planted
