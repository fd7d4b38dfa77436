#pragma once

#include <string>
#include <string_view>

namespace muo::data {

// Normalizes `text` to Unicode's form C (UAX #15) as Hugging Face's tokenizers do, which use
// Unicode 9: newer characters stay unchanged and do not compose. Bytes that are not UTF-8 stay
// unchanged, and the text before them is normalized as if it ended there.
std::string to_nfc(std::string_view text);

}  // namespace muo::data
