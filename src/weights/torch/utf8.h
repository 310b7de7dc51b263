// weights/torch/utf8.h: what Python's pickle takes as the text of a str.
#pragma once
#include <string_view>

namespace danlu::weights::torch_file {

/// UTF-8, with lone surrogates in their three-byte form (Python's surrogatepass).
bool is_python_utf8(std::string_view text);

}  // namespace danlu::weights::torch_file
