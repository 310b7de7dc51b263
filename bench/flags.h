// bench/flags.h: the flags of a benchmark's command line.
#pragma once
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace danlu::bench {

struct WholeNumber {
  int64_t* value;
  int64_t least = 1;
};
/// What a flag sets: a bool stands for one without a value.
using Flag = std::variant<WholeNumber, std::string*, bool*>;
using Flags = std::map<std::string, Flag>;

/// Says why on stderr and ends the program with code 2.
[[noreturn]] inline void refuse(const std::string& program, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), why.c_str());
  std::exit(2);
}

/// Sets what the flags among argv say, and returns the other words. Refuses unknown flags, flags
/// without their value, what is no such number, and more than `most_words`.
inline std::vector<std::string> parse_flags(int argc, char** argv, const Flags& flags,
                                            size_t most_words = 0) {
  const std::string path = argv[0], program = path.substr(path.rfind('/') + 1);
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0) {
      if (words.size() == most_words) refuse(program, "unknown word " + word);
      words.push_back(word);
      continue;
    }
    const auto flag = flags.find(word);
    if (flag == flags.end()) refuse(program, "unknown option " + word);
    if (const auto* on = std::get_if<bool*>(&flag->second)) {
      **on = true;
      continue;
    }
    if (i + 1 == argc) refuse(program, word + " needs a value");
    const std::string value = argv[++i];
    if (const auto* text = std::get_if<std::string*>(&flag->second)) {
      **text = value;
      continue;
    }
    const auto& number = std::get<WholeNumber>(flag->second);
    const char* const end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, *number.value);
    if (read.ec != std::errc() || read.ptr != end || *number.value < number.least) {
      refuse(program, word + " must be a whole number from " + std::to_string(number.least) +
                          " on, got '" + value + "'");
    }
  }
  return words;
}

}  // namespace danlu::bench
