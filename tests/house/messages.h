// tests/house/messages.h: string literals of the sources, and which of them people read.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "house/source_tree.h"

namespace danlu::house {

/// One string literal, adjacent ones joined.
struct Literal {
  std::string path;
  int line = 0;
  std::string text;                ///< escapes resolved
  std::vector<std::string> calls;  ///< names before the brackets around it, innermost last
  bool is_first_argument = false;
};

std::vector<Literal> literals_of(const SourceFile& file);

/// True if people read the literal: it is said (tr, log::info, …) and has a word, or it has words
/// of a sentence. What is in InternalError is for developers.
bool is_message(const Literal& literal);

/// The places of a format, automatic ones numbered: {"0:", "1:.3f"}. "{{" is no place.
std::multiset<std::string> places_of(const std::string& format);

/// tests/house/untranslated.txt: beginnings of paths and of texts that are not for the terminal.
/// What tr() is given is, wherever it stands.
struct Untranslated {
  std::vector<std::string> paths, texts;
  bool has(const Literal& literal) const;
};
Untranslated read_untranslated(const fs::path& file);

}  // namespace danlu::house
