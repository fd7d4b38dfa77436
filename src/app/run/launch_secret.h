#pragma once

#include <filesystem>
#include <string>

#include "app/options/launch.h"

namespace muo::app {

// The secret of a launch: kSecretVariable's, else one that process 0 draws and writes to
// FOLDER/.launch-ID-PORT, which its user alone can read. The folder is one that all processes see;
// without one (an empty path) the variable must be set.
class SharedSecret {
 public:
  // In process 0, replaces a file of a launch that was killed. Throws InputError.
  SharedSecret(const Launch& launch, const std::filesystem::path& folder, int port);
  ~SharedSecret();  // removes the file in process 0
  SharedSecret(const SharedSecret&) = delete;
  SharedSecret& operator=(const SharedSecret&) = delete;

  // Reads the file anew each time. Throws InputError if it is not there (yet), or not safe.
  [[nodiscard]] std::string read() const;

 private:
  std::string secret_;  // empty: it is read from the file
  std::filesystem::path file_;
  bool is_written_here_ = false;
};

}  // namespace muo::app
