// data/megatron/md5.h: MD5, needed only because Megatron names its cache files by it. Not for
// security.
#pragma once
#include <string>
#include <string_view>

namespace danlu::data {

/// Lower-case hexadecimal digest, 32 characters. Source: RFC 1321.
std::string md5_hex(std::string_view bytes);

}  // namespace danlu::data
