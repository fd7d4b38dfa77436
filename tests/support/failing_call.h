#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>  // NOLINT(modernize-deprecated-headers): renameat2 is not in <cstdio>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <string_view>

// Include this in exactly one source of a test program: it replaces functions of libc, also for
// the shared library.

namespace muo::test {

// During its lifetime, the nth call of a function defined below fails with `error`, on any thread.
class FailingCall {
 public:
  FailingCall(std::string_view function, int nth, int error = EIO)
      : function_(function), left_(nth), error_(error) {
    const std::lock_guard lock(mutex_);
    current_ = this;
  }
  ~FailingCall() {
    const std::lock_guard lock(mutex_);
    current_ = nullptr;
  }
  FailingCall(const FailingCall&) = delete;
  FailingCall& operator=(const FailingCall&) = delete;

  [[nodiscard]] bool has_failed() const {
    const std::lock_guard lock(mutex_);
    return left_ <= 0;
  }

  // Calls the function of libc, or fails.
  template <class Function, class... Arguments>
  static int call(const char* name, Arguments... arguments) {
    {
      const std::lock_guard lock(mutex_);
      FailingCall* const failing = current_;
      if (failing != nullptr && failing->function_ == name && --failing->left_ == 0) {
        errno = failing->error_;
        return -1;
      }
    }
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name))(arguments...);
  }

 private:
  inline static std::mutex mutex_;
  inline static FailingCall* current_ = nullptr;

  const std::string_view function_;
  int left_;
  const int error_;
};

}  // namespace muo::test

// NOLINTBEGIN(misc-definitions-in-headers): that is its purpose
extern "C" {
int fsync(int file) { return muo::test::FailingCall::call<decltype(::fsync)>("fsync", file); }
int fdatasync(int file) {
  return muo::test::FailingCall::call<decltype(::fdatasync)>("fdatasync", file);
}
int ftruncate(int file, off_t bytes) noexcept {
  return muo::test::FailingCall::call<decltype(::ftruncate)>("ftruncate", file, bytes);
}
int fallocate(int file, int mode, off_t offset, off_t bytes) {
  return muo::test::FailingCall::call<decltype(::fallocate)>("fallocate", file, mode, offset,
                                                             bytes);
}
int rename(const char* from, const char* to) noexcept {
  return muo::test::FailingCall::call<decltype(::rename)>("rename", from, to);
}
int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) noexcept {
  return muo::test::FailingCall::call<decltype(::renameat2)>("renameat2", from_directory, from,
                                                             to_directory, to, flags);
}
}
// NOLINTEND(misc-definitions-in-headers)
