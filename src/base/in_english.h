// base/in_english.h: what is stored reads the same everywhere.
#pragma once

namespace danlu {

/// While one lives, texts that this thread makes with tr() are English in any language.
class InEnglish {
 public:
  InEnglish();
  ~InEnglish();
  InEnglish(const InEnglish&) = delete;
  InEnglish& operator=(const InEnglish&) = delete;
};

}  // namespace danlu
