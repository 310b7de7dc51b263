// data/media_encoder.h: from the pictures and videos of a conversation to placeholders among its
// tokens. No pixels are kept.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/row.h"
#include "data/media_settings.h"
#include "data/media_span.h"
#include "text/media.h"

namespace danlu::data {

/// How closely files are looked at before their rows are taken.
enum class MediaCheck {
  kHeaders,  ///< who decodes them next can say what is wrong
  kWhole,    ///< a step of a training will decode them: whatever would fail there fails here
};

/// Why a row was dropped whose picture a server refused or did not send to its end.
inline constexpr const char* kNotFetched = "a picture on the web that cannot be fetched";

/// Immutable; thread-safe.
class MediaEncoder {
 public:
  MediaEncoder(MediaSettings settings, text::MediaTokens tokens,
               MediaCheck check = MediaCheck::kWhole)
      : settings_(std::move(settings)), tokens_(tokens), check_(check) {}

  const MediaSettings& settings() const { return settings_; }
  const text::MediaTokens& tokens() const { return tokens_; }

  /// Files and grids of all pictures and videos, in order; spans without a place yet. `row` names
  /// the row in messages. False: *problem is set (a file that is missing or broken, one on the web,
  /// a grid beyond limits).
  bool measure(const text::Conversation& conversation, const std::filesystem::path& row_folder,
               const std::string& row, std::vector<MediaSpan>* spans, RowProblem* problem) const;

  /// The conversation as a template is to write it: objects where their tags stand, and one
  /// placeholder for each picture and video of `spans`. Nothing: *problem is set (see
  /// write_objects).
  std::optional<text::Conversation> written(const text::Conversation& conversation,
                                            const std::vector<MediaSpan>& spans,
                                            RowProblem* problem) const;

  /// Makes as many placeholders of each as its grid has tokens, sets the places of `spans`, and
  /// takes placeholders and the tokens around them out of the targets. False: *problem is set (the
  /// template wrote other placeholders than one for each).
  bool expand(text::EncodedConversation* encoded, std::vector<MediaSpan>* spans,
              RowProblem* problem) const;

 private:
  bool measure_one(const text::MediaReference& reference, const std::filesystem::path& row_folder,
                   MediaSpan* span, RowProblem* problem) const;
  media::Grid measure_picture(const MediaFile& file, const media::PreResize& resize,
                              media::Size* shown) const;
  media::Grid measure_frames(const MediaSpan& span) const;
  void measure_video(MediaSpan* span) const;

  MediaSettings settings_;
  text::MediaTokens tokens_;
  MediaCheck check_;
};

/// Null without settings. Errors: ModelError if the tokenizer lacks the tokens for pictures.
std::shared_ptr<const MediaEncoder> make_media_encoder(const std::optional<MediaSettings>& settings,
                                                       const text::Tokenizer* tokenizer,
                                                       MediaCheck check = MediaCheck::kWhole);

}  // namespace danlu::data
