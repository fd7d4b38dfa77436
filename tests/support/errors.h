#pragma once

#include <exception>
#include <string>

namespace muo::test {

// Returns the message of the Exception that `body` throws, or "no exception" if it throws none.
// Other exceptions propagate and fail the test.
template <class Exception, class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const Exception& e) {
    return e.what();
  }
  return "no exception";
}

}  // namespace muo::test
