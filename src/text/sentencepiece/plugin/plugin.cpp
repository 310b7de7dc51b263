// The plug-in of text/sentencepiece/model.h: the only source that sees libsentencepiece.
#include <sentencepiece_processor.h>

#include "text/sentencepiece/model.h"

namespace danlu::text {
namespace {

class LibraryModel final : public SentencePieceModel {
 public:
  std::string load(std::string_view serialized) {
    return text_of(processor_.LoadFromSerializedProto(serialized));
  }

  std::string encode(std::string_view text, std::vector<int>* ids) const override {
    std::vector<int> found;
    const std::string error = text_of(processor_.Encode(text, &found));
    ids->insert(ids->end(), found.begin(), found.end());
    return error;
  }
  std::string decode(const std::vector<int>& ids, std::string* text) const override {
    return text_of(processor_.Decode(ids, text));
  }
  int size() const override { return processor_.GetPieceSize(); }
  int id_of(std::string_view piece) const override { return processor_.PieceToId(piece); }
  std::string piece(int id) const override { return processor_.IdToPiece(id); }
  bool is_control(int id) const override { return processor_.IsControl(id); }
  bool is_byte(int id) const override { return processor_.IsByte(id); }
  int bos_id() const override { return processor_.bos_id(); }
  int eos_id() const override { return processor_.eos_id(); }
  int unk_id() const override { return processor_.unk_id(); }
  int pad_id() const override { return processor_.pad_id(); }

 private:
  static std::string text_of(const sentencepiece::util::Status& status) {
    return status.ok() ? std::string() : status.ToString();
  }
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace
}  // namespace danlu::text

extern "C" __attribute__((visibility("default"))) danlu::text::SentencePieceModel*
danlu_sentencepiece_model(const char* data, size_t size_bytes, std::string* error) {
  auto model = std::make_unique<danlu::text::LibraryModel>();
  *error = model->load({data, size_bytes});
  return error->empty() ? model.release() : nullptr;
}
