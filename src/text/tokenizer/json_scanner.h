// text/tokenizer/json_scanner.h: reads the large arrays of tokenizer.json without building a tree.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace danlu::text {

/// A cursor over JSON text. Small values are handed to the ordinary parser (`value`), large ones
/// are walked in place. Errors of every method: ModelError "<origin>:<line>:<column>: <what>".
class JsonScanner {
 public:
  JsonScanner(std::string_view text, std::string origin);

  /// First character of the next value; '\0' at the end.
  char peek();
  /// Calls on_key(key) for each member; it must consume the member's value.
  template <typename F>
  void object(F&& on_key) {
    open('{', "an object");
    std::string storage;
    if (close_if('}')) return;
    do {
      const std::string_view key = string(storage);
      expect(':');
      on_key(key);
    } while (more('}'));
  }
  /// Calls on_item() for each element; it must consume the element.
  template <typename F>
  void array(F&& on_item) {
    open('[', "an array");
    if (close_if(']')) return;
    do on_item();
    while (more(']'));
  }
  /// A string; the view points into the source, or into `storage` if it had escapes. Ill-formed
  /// UTF-8 and lone surrogates become U+FFFD.
  std::string_view string(std::string& storage);
  int64_t integer();
  double number();
  /// Any value, parsed into a tree.
  Json value();
  void skip() { raw(); }
  /// Errors if something but white space is left.
  void finish();
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string_view raw();
  void skip_space();
  void open(char bracket, const char* what);
  bool close_if(char bracket);
  bool more(char bracket);
  void expect(char c);
  void unescape(std::string& out);
  uint32_t hex4();

  std::string_view text_;
  std::string origin_;
  size_t at_ = 0;
};

}  // namespace danlu::text
