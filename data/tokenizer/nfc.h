#pragma once

#include <string>
#include <string_view>

namespace muo::data {

// `text` in Unicode's normal form C (UAX #15), as Hugging Face's tokenizers make it, which know
// Unicode 9: what is newer changes nothing there. Bytes that are not UTF-8 end the text before them
// and stay as they are.
std::string to_nfc(std::string_view text);

}  // namespace muo::data
