// weights/gguf/gguf_format.h: the words of the format, which the tokenizers know too, in this
// namespace.
#pragma once
#include "base/gguf_format.h"
#include "base/gguf_header.h"

namespace danlu::weights::gguf {

using namespace danlu::gguf;

}  // namespace danlu::weights::gguf
