// api/json_scanner.h: follows JSON text byte by byte, as it comes.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace danlu::api {

/// What a byte was to whoever reads a text.
enum class Step {
  kMore,        ///< part of it, which goes on
  kDone,        ///< its last
  kDoneBefore,  ///< it had ended before: the byte is not part of it
  kBad,         ///< it cannot be one any more
};

inline bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/// One JSON value (RFC 8259, at most kMaxJsonDepth deep), from its first byte on.
class JsonScanner {
 public:
  Step add(char c);
  /// A number may end with the text.
  bool may_end() const;

 private:
  enum class State : uint8_t {
    kValue,
    kFirstElement,  ///< after '[': a value or ']'
    kFirstKey,      ///< after '{': a key or '}'
    kKey,
    kColon,
    kAfterValue,
    kString,
    kEscape,
    kHex,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponentSign,
    kExponentDigits,
    kExponent,
    kWord,
  };
  Step value(char c);
  Step after_value(char c);
  Step string(char c);
  Step number(char c);
  Step end_of_value();
  Step end_of_number(char c);

  State state_ = State::kValue;
  std::string open_;  ///< '{' and '[' that are not closed
  bool in_key_ = false;
  int hex_left_ = 0;
  const char* word_ = nullptr;  ///< what is left of true, false, null
};

/// An object that names a function and its arguments, byte by byte. Arguments in a string that
/// holds an object are that object; further members are left out.
class JsonCall {
 public:
  struct Keys {
    bool may_say_parameters = false;  ///< "parameters" is "arguments"
    bool needs_arguments = false;     ///< an object without them is no call
    bool is_strict = false;           ///< an object with members that no call has is none
  };
  using Begin = std::function<void(const std::string& name)>;
  using Arguments = std::function<void(std::string_view fragment)>;
  JsonCall(Keys keys, Begin begin, Arguments arguments)
      : keys_(keys), begin_(std::move(begin)), arguments_(std::move(arguments)) {}

  /// From '{' on. At kDone the call has begun and all its arguments were given out.
  Step add(char c);

 private:
  enum class State : uint8_t {
    kOpen,
    kFirstKey,
    kKey,
    kInKey,
    kColon,
    kBeforeValue,
    kValue,
    kAfter
  };
  enum class Member : uint8_t { kName, kArguments, kOther };
  Step begin_value(char c);
  Step in_value(char c);
  bool end_of_key();
  bool end_of_value();
  void give(std::string_view text);
  Step end();

  Keys keys_;
  Begin begin_;
  Arguments arguments_;
  State state_ = State::kOpen;
  Member member_ = Member::kOther;
  JsonScanner scanner_;
  std::string text_;            ///< of the key or value that is read
  std::string name_, waiting_;  ///< waiting_: arguments that came before the name
  bool streams_ = false, has_name_ = false, has_arguments_ = false, has_begun_ = false;
};

}  // namespace danlu::api
