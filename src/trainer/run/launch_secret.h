#pragma once

#include <filesystem>
#include <string>

#include "trainer/options/launch.h"

namespace muo::trainer {

// The secret of a launch: the value of kSecretVariable, or one that process 0 generates and writes
// to FOLDER/.launch-ID-PORT, readable only by its user. All processes must see the folder. With an
// empty folder path, the variable must be set.
class SharedSecret {
 public:
  // Process 0 replaces the file left by a killed launch. Throws InputError.
  SharedSecret(const Launch& launch, const std::filesystem::path& folder, int port);
  ~SharedSecret();  // removes the file in process 0
  SharedSecret(const SharedSecret&) = delete;
  SharedSecret& operator=(const SharedSecret&) = delete;

  // Reads the file on each call. Throws InputError if it does not exist (yet) or is not private.
  [[nodiscard]] std::string read() const;

 private:
  std::string secret_;  // empty: read from the file
  std::filesystem::path file_;
  bool is_written_here_ = false;
};

}  // namespace muo::trainer
