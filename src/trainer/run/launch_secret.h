#pragma once

#include <filesystem>
#include <string>

#include "trainer/options/launch.h"

namespace muo::trainer {

// The secret of a launch: the value of kSecretVariable, else one that process 0 generates and
// writes to FOLDER/.launch-ID-PORT, readable by its user only. All processes must see the folder;
// with an empty path the variable must be set.
class SharedSecret {
 public:
  // Process 0 replaces the file of a launch that was killed. Throws InputError.
  SharedSecret(const Launch& launch, const std::filesystem::path& folder, int port);
  ~SharedSecret();  // removes the file in process 0
  SharedSecret(const SharedSecret&) = delete;
  SharedSecret& operator=(const SharedSecret&) = delete;

  // Reads the file at each call. Throws InputError if it does not exist (yet), or is not private.
  [[nodiscard]] std::string read() const;

 private:
  std::string secret_;  // empty: read from the file
  std::filesystem::path file_;
  bool is_written_here_ = false;
};

}  // namespace muo::trainer
