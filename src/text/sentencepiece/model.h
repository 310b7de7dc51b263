// text/sentencepiece/model.h: libsentencepiece behind a line.
//
// Debian's libsentencepiece exports its own copy of protobuf, and libtorch needs another one: with
// both in the process's global symbols, libtorch crashes while it is being loaded. So the library
// is linked into a small plug-in of ours, opened with symbols of its own (RTLD_LOCAL |
// RTLD_DEEPBIND).
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace danlu::text {

/// One SentencePiece model. Thread-safe. Errors come back as text, never as exceptions.
class SentencePieceModel {
 public:
  virtual ~SentencePieceModel() = default;
  /// Appends ids. Result: "" or what went wrong.
  virtual std::string encode(std::string_view text, std::vector<int>* ids) const = 0;
  virtual std::string decode(const std::vector<int>& ids, std::string* text) const = 0;
  virtual int size() const = 0;
  virtual int id_of(std::string_view piece) const = 0;
  virtual std::string piece(int id) const = 0;
  virtual bool is_control(int id) const = 0;
  virtual bool is_byte(int id) const = 0;
  /// -1 where the model has none.
  virtual int bos_id() const = 0;
  virtual int eos_id() const = 0;
  virtual int unk_id() const = 0;
  virtual int pad_id() const = 0;
};

/// Parses a serialized ModelProto; nullptr and *error if it is none.
/// Errors: ModelError if the plug-in library cannot be opened.
std::unique_ptr<const SentencePieceModel> open_sentencepiece(std::string_view serialized,
                                                             std::string* error);

}  // namespace danlu::text
