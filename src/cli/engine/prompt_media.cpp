#include "cli/engine/prompt_media.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/file_hash.h"
#include "base/keyed_hash.h"
#include "base/threads.h"
#include "data/formats/media.h"
#include "media/media_file.h"
#include "settings/options/media_flags.h"
#include "text/media.h"
#include "train/visual_input.h"

namespace danlu::cli {
namespace {

/// A hash of the files' content: a picture is the same one under another name, and another one once
/// its file has changed. By a key: a client that could make a picture of another's number would
/// have that one's answers be about his own.
uint64_t content_of(const data::MediaSpan& span) {
  KeyedHash all(key_of_process());
  for (const data::MediaFile& file : span.files) {
    KeyedHash one(key_of_process());
    if (file.bytes)
      one.add(*file.bytes);
    else
      one.add(media::open_media_file(file.path).text());
    const uint64_t hash = one.value();
    all.add({reinterpret_cast<const char*>(&hash), sizeof hash});
  }
  return all.value() & ~infer::kOwnContent;
}

infer::PromptPicture picture_of(const data::MediaSpan& span,
                                const std::shared_ptr<data::MediaLoader>& loader,
                                bool tells_apart) {
  infer::PromptPicture picture;
  picture.begin = span.begin;
  picture.grid = span.grid;
  picture.is_video = span.kind == text::MediaKind::kVideo;
  if (span.second_per_grid > 0) picture.second_per_grid = span.second_per_grid;
  picture.pixels = [loader, span] { return train::tensor_of(loader->start({span})->take()); };
  if (tells_apart) picture.content = content_of(span);
  return picture;
}

std::shared_ptr<const std::string> content_now(const std::string& name,
                                               const data::MediaSettings& settings) {
  if (data::is_on_the_web(name)) {
    // Without the flag it keeps its name, and is refused by it.
    return settings.fetch ? std::make_shared<const std::string>(settings.fetch(name)) : nullptr;
  }
  const MappedFile map = media::open_media_file(data::locate_media(name, settings, {}).string());
  const auto bytes = map.bytes();
  return std::make_shared<const std::string>(reinterpret_cast<const char*>(bytes.data()),
                                             bytes.size());
}

/// Callers say whose it is.
[[noreturn]] void refuse_media_of(const data::RowProblem& problem) {
  throw DataError(translated_filled(problem.reason) +
                  (problem.detail.empty() ? "" : " (" + problem.detail + ")"));
}

}  // namespace

GivenMedia given_media(const Options& options) {
  GivenMedia given;
  if (options.has_value("image")) given.images = options.get_list("image");
  if (options.has_value("video")) given.videos = options.get_list("video");
  // An empty variable of a script.
  for (const char* name : {"image", "video"}) {
    const std::vector<std::string>& files = name[0] == 'i' ? given.images : given.videos;
    const bool is_empty = std::find(files.begin(), files.end(), "") != files.end();
    if (options.is_given(name) && (files.empty() || is_empty))
      throw UsageError(tr("[{}] names no file", options.given_as(name)));
  }
  return given;
}

text::Message message_with_media(const std::string& content, const GivenMedia& media,
                                 const data::MediaSettings& settings, bool holds_files,
                                 const std::string& origin) {
  text::Conversation conversation;
  conversation.messages.push_back({"user", content});
  const Json row = {{"images", media.images}, {"videos", media.videos}};
  data::take_media(row, origin, /*reads_media=*/true, &conversation);
  text::Message message = std::move(conversation.messages.front());
  for (text::MediaPlace& place : message.media) {
    for (text::MediaPiece& piece : place.media.pieces) {
      if (holds_files && !piece.bytes) piece.bytes = content_now(piece.name, settings);
    }
  }
  return message;
}

uint64_t content_of_media(const std::string& name, const data::MediaSettings& settings,
                          const std::filesystem::path& folder) {
  if (data::is_on_the_web(name)) return 0;
  const std::filesystem::path path = data::locate_media(name, settings, folder);
  std::error_code ignored;
  // To read what is no file may never end.
  if (!std::filesystem::is_regular_file(path, ignored)) return 0;
  try {
    return hash_file(path);
  } catch (const IoError&) {
    return 0;
  }
}

void require_no_media(const Options& options, const std::filesystem::path& model_directory) {
  for (const char* name : {"image", "video"}) {
    if (!options.has_value(name)) continue;
    throw UsageError(
        fmt::format("[{}] {}", options.given_as(name), data::why_no_media(model_directory)),
        tr("pictures need a model such as Qwen2-VL, with preprocessor_config.json in its "
           "directory"));
  }
}

PromptMedia::PromptMedia(std::shared_ptr<const data::MediaEncoder> encoder, bool tells_apart)
    : encoder_(std::move(encoder)),
      loader_(std::make_shared<data::MediaLoader>(encoder_->settings(), default_thread_count())),
      tells_apart_(tells_apart) {}

std::shared_ptr<const PromptMedia> PromptMedia::of(const Options& options,
                                                   const std::filesystem::path& directory,
                                                   const text::Tokenizer& tokenizer,
                                                   bool tells_apart) {
  auto encoder = data::make_media_encoder(settings::media_settings_from(options, directory),
                                          &tokenizer, data::MediaCheck::kHeaders);
  if (!encoder) return nullptr;
  return std::make_shared<const PromptMedia>(std::move(encoder), tells_apart);
}

void PromptMedia::encode(const text::ChatEncoder& encoder, const text::Conversation& conversation,
                         const std::filesystem::path& folder, const std::string& place,
                         infer::Request* request, const OnTokens& on_tokens) const {
  if (const auto pad = text::placeholder_written_in(conversation); !pad.empty())
    refuse_media_of({"the text holds a token that stands for pictures", std::string(pad)});
  std::vector<data::MediaSpan> spans;
  data::RowProblem problem;
  if (!encoder_->measure(conversation, folder, place, &spans, &problem)) refuse_media_of(problem);
  if (on_tokens && !spans.empty()) {
    int64_t tokens = 0;
    for (const data::MediaSpan& span : spans) tokens += span.count;
    on_tokens(std::ssize(spans), tokens);
  }
  text::EncodedConversation encoded;
  std::optional<text::Conversation> written;
  if (!spans.empty() || conversation.grounding) {
    written = encoder_->written(conversation, spans, &problem);
    if (!written) refuse_media_of(problem);
  }
  encoded.ids = encoder.encode_prompt(written ? *written : conversation);
  encoded.labels.resize(encoded.ids.size(), kIgnoreLabel);
  if (!encoder_->expand(&encoded, &spans, &problem)) refuse_media_of(problem);
  request->prompt = std::move(encoded.ids);
  request->pictures.clear();
  for (const data::MediaSpan& span : spans)
    request->pictures.push_back(picture_of(span, loader_, tells_apart_));
}

std::string PromptMedia::marked(const std::string& text) {
  constexpr std::string_view kTag = "<image>";
  std::string result;
  size_t begin = 0;
  for (size_t at = text.find(kTag); at != text.npos; at = text.find(kTag, begin)) {
    result.append(text, begin, at - begin);
    for (const std::string_view token : {text::kVisionStart, text::kImagePad, text::kVisionEnd})
      result += token;
    begin = at + kTag.size();
  }
  return result.append(text, begin);
}

std::vector<infer::PromptPicture> PromptMedia::expand(const std::vector<std::string>& images,
                                                      const std::filesystem::path& folder,
                                                      std::vector<text::TokenId>* ids) const {
  text::Conversation conversation;
  text::Message& message = conversation.messages.emplace_back(text::Message{"user", ""});
  for (const std::string& image : images)
    message.media.push_back({0, {.kind = text::MediaKind::kImage, .pieces = {{.name = image}}}});
  const std::string place = images.empty() ? "" : images.front();
  std::vector<data::MediaSpan> spans;
  data::RowProblem problem;
  text::EncodedConversation encoded{*ids, {}};
  encoded.labels.resize(ids->size(), kIgnoreLabel);
  if (!encoder_->measure(conversation, folder, place, &spans, &problem) ||
      !encoder_->expand(&encoded, &spans, &problem))
    refuse_media_of(problem);
  *ids = std::move(encoded.ids);
  std::vector<infer::PromptPicture> pictures;
  for (const data::MediaSpan& span : spans)
    pictures.push_back(picture_of(span, loader_, tells_apart_));
  return pictures;
}

}  // namespace danlu::cli
