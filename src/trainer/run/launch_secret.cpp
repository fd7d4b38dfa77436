#include "trainer/run/launch_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <utility>

#include "base/durable_files.h"
#include "base/system_error_text.h"
#include "runtime/comm/handshake.h"
#include "trainer/options/option_row.h"

namespace muo::trainer {
namespace {

std::string file_name(const Launch& launch, int port) {
  constexpr std::size_t kMaxIdBytes = 100;
  std::string name = concat(".launch-", launch.id.substr(0, kMaxIdBytes), "-", port);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  return name;
}

}  // namespace

SharedSecret::SharedSecret(const Launch& launch, const std::filesystem::path& folder, int port)
    : secret_(launch.secret) {
  if (!secret_.empty()) return;
  if (folder.empty())
    throw input_error(
        "{} has started processes on several hosts, but {}, with which they authenticate, is not "
        "set: {}",
        launch.by, kSecretVariable, kSecretCommand);
  file_ = folder / file_name(launch, port);
  if (launch.process != 0) return;
  secret_ = new_secret();
  before_any_work("--out", folder.string(), [&] {
    make_directories(folder);
    replace_file(file_, secret_, S_IRUSR | S_IWUSR);
  });
  is_written_here_ = true;
}

SharedSecret::~SharedSecret() {
  if (is_written_here_) ::unlink(file_.c_str());
}

std::string SharedSecret::read() const {
  if (!secret_.empty()) return secret_;
  const auto refuse = [&](const std::string& why) {
    return input_error(
        "no secret with which the launch's processes can authenticate: {} is not set, and {} of "
        "process 0 {}: {}",
        kSecretVariable, file_.string(), why, kSecretCommand);
  };
  const FileDescriptor file(::open(file_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) throw refuse(concat("cannot be read (", system_error_text(errno), ")"));
  struct stat state = {};
  if (::fstat(file.number(), &state) != 0 || !S_ISREG(state.st_mode) ||
      state.st_uid != ::geteuid() || (state.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw refuse("is not private to this user");
  std::array<char, 2 * kMinSecretBytes> bytes{};
  const ssize_t count = ::read(file.number(), bytes.data(), bytes.size());
  if (std::cmp_less(count, kMinSecretBytes)) throw refuse("is incomplete");
  return {bytes.data(), static_cast<std::size_t>(count)};
}

}  // namespace muo::trainer
