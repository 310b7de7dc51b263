// text/base64.h: bytes in base64 (RFC 4648 section 4), as tokenizer files hold them.
#pragma once
#include <string>
#include <string_view>

namespace danlu::text {

/// White space is passed over. False if the rest of `written` is no base64 with its padding;
/// `bytes` then holds what was read before.
bool decode_base64(std::string_view written, std::string* bytes);

std::string encode_base64(std::string_view bytes);

}  // namespace danlu::text
