#include "text/tokenizer/scanners.h"

namespace danlu::text {

KnownPattern known_pattern(std::string_view regex) {
  if (regex == kQwen2Regex) return KnownPattern::kQwen2;
  if (regex == kLlama3Regex) return KnownPattern::kLlama3;
  if (regex == kGpt2Regex) return KnownPattern::kGpt2;
  return KnownPattern::kNone;
}

}  // namespace danlu::text
