// cli/engine/prompt_media.h: pictures and videos of prompts: their tokens before an answer begins,
// their pixels when its pass needs them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/media_encoder.h"
#include "data/media_loader.h"
#include "infer/generate.h"
#include "text/conversation.h"

namespace danlu::cli {

/// The files that --image and --video name.
struct GivenMedia {
  std::vector<std::string> images, videos;
  bool empty() const { return images.empty() && videos.empty(); }
};
GivenMedia given_media(const Options& options);

/// A question with them where it has <image> and <video>, or before it where it has neither.
/// holds_files: the files are read now, so that the message keeps what they hold today. `origin`
/// begins error texts. Errors: DataError if tags and files differ in number, or a file is missing.
text::Message message_with_media(const std::string& content, const GivenMedia& media,
                                 const data::MediaSettings& settings, bool holds_files,
                                 const std::string& origin);

/// A hash of what the file called `name` holds, looked for as a row in `folder` has it. Of a URL,
/// and of a file that cannot be read, 0.
uint64_t content_of_media(const std::string& name, const data::MediaSettings& settings,
                          const std::filesystem::path& folder);

/// For a model without PromptMedia. Errors: UsageError naming the flag if a picture was named, and
/// why the model cannot read it.
void require_no_media(const Options& options, const std::filesystem::path& model_directory);

/// Immutable; thread-safe.
class PromptMedia {
 public:
  /// tells_apart: files are read for what they hold, so that equal pictures are seen once.
  PromptMedia(std::shared_ptr<const data::MediaEncoder> encoder, bool tells_apart);
  /// Null for a model that reads text alone. directory: where preprocessor_config.json is.
  static std::shared_ptr<const PromptMedia> of(const Options& options,
                                               const std::filesystem::path& directory,
                                               const text::Tokenizer& tokenizer, bool tells_apart);

  const data::MediaSettings& settings() const { return encoder_->settings(); }
  /// Told how many pictures and videos there are, and how many tokens they take.
  using OnTokens = std::function<void(int64_t count, int64_t tokens)>;
  /// The prompt of `conversation`, and its pictures. folder: of the row's file. place: of the row,
  /// for messages. on_tokens: called before there is a prompt; what it throws goes out. Errors:
  /// DataError of the first picture or video that cannot be used.
  void encode(const text::ChatEncoder& encoder, const text::Conversation& conversation,
              const std::filesystem::path& folder, const std::string& place,
              infer::Request* request, const OnTokens& on_tokens = {}) const;

  /// A text with <image> where a picture stands, as the model's vocabulary has it.
  static std::string marked(const std::string& text);
  /// The pictures of a text of marked(), of which `ids` has one placeholder each: it gets as many
  /// as they need. Errors: as encode.
  std::vector<infer::PromptPicture> expand(const std::vector<std::string>& images,
                                           const std::filesystem::path& folder,
                                           std::vector<text::TokenId>* ids) const;

 private:
  std::shared_ptr<const data::MediaEncoder> encoder_;
  std::shared_ptr<data::MediaLoader> loader_;
  bool tells_apart_;
};

}  // namespace danlu::cli
