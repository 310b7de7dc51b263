// text/conversation.h: a conversation, and how it becomes token ids with a training mask.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ignore_label.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace danlu::text {

enum class MediaKind { kImage, kVideo };

/// A file of a picture, a video or a frame, as a row names it. Nothing was opened yet.
struct MediaPiece {
  std::string name = {};  ///< path or URL as written; beside `bytes` for messages only
  std::shared_ptr<const std::string> bytes = {};  ///< the file's content, where the row holds it
};

/// A picture or a video of a message.
struct MediaReference {
  MediaKind kind = MediaKind::kImage;
  std::vector<MediaPiece> pieces = {};  ///< one; of a list of frames one for each
  bool is_frame_list = false;           ///< a video given as pictures
  std::optional<double> fps = {};       ///< frames of the list in a second, where the row says it
};

struct MediaPlace {
  size_t offset = 0;  ///< byte of the message's content before which it stands
  MediaReference media = {};
};

/// One message. role: "system", "user", "assistant", "tool" (others are passed to templates as they
/// are).
struct Message {
  std::string role;
  std::string content;
  /// tool_calls, name, reasoning_content, …: further keys of the message. A key "content" replaces
  /// `content` for Jinja templates: null beside tool calls, or a list of parts. An Alpaca row's
  /// keys "instruction" and "input" on the user message let `stanford_alpaca` choose its prompt.
  Json extra = Json::object();
  bool train = true;           ///< false: this assistant message gets no loss
  bool train_is_said = false;  ///< by the row itself: then no part of a conversation outweighs it
  /// Pictures and videos, by ascending offset. Encoders pass them by: text/media.h writes the
  /// placeholders into the content before.
  std::vector<MediaPlace> media = {};
};

/// Objects in the pictures of a conversation, which its text names by tags (ms-swift's `objects`):
/// data/grounded_text.h writes them.
struct Grounding {
  std::vector<std::string> names = {};          ///< what <ref-object> stands for, in order
  std::vector<std::vector<double>> boxes = {};  ///< of <bbox>: x, y or x1, y1, x2, y2
  std::vector<int64_t> pictures = {};           ///< of each box: that it lies in, from 0
  bool in_shares = false;  ///< boxes are parts of the picture's sides, not pixels
};

struct Conversation {
  std::vector<Message> messages;
  Json tools;  ///< null or an array, as OpenAI's `tools`
  std::optional<Grounding> grounding = {};
};

/// Token ids of a conversation; labels[i] is ids[i] where loss is taken (as target), else
/// kIgnoreLabel. Not shifted: the model's loss shifts.
struct EncodedConversation {
  std::vector<TokenId> ids;
  std::vector<TokenId> labels;
};

/// Turns conversations into ids for one model. Thread-safe.
class ChatEncoder {
 public:
  virtual ~ChatEncoder() = default;

  /// name: "", "auto" or "hf" (the tokenizer's own template, and where a conversation has tools the
  /// one named "tool_use" if there is one; ModelError listing names if it has none), a name from
  /// text/templates.json, or a name from `templates_file` (same format), which is searched first. A
  /// *.jinja path is read as a Jinja template. Which name a model needs is choose_template's
  /// question (text/template_choice.h). template_arguments: an object of further variables for
  /// Jinja templates (enable_thinking, …); named templates know enable_thinking alone. Errors:
  /// ModelError (unknown name, template that does not parse, a token the tokenizer lacks),
  /// UsageError (arguments that are not an object or not known to a named template).
  static std::shared_ptr<const ChatEncoder> create(std::shared_ptr<const Tokenizer> tokenizer,
                                                   const std::string& name,
                                                   const std::filesystem::path& templates_file = {},
                                                   const Json& template_arguments = nullptr);
  /// Names accepted by create, the file's first.
  static std::vector<std::string> names(const std::filesystem::path& templates_file = {});

  /// The whole conversation, for training. Every assistant message (with train == true) is a
  /// target, its end-of-turn token included, the template's text around it not. Errors: DataError
  /// (roles out of order, no assistant message, a template that cannot render it).
  virtual EncodedConversation encode(const Conversation& conversation) const = 0;
  /// The same ids with every answer as a target, whatever is to be learnt: where its turns part.
  virtual EncodedConversation encode_all_answers(Conversation conversation) const;
  /// The same ids alone, where nobody asks what of them is a target: a conversation whose answers
  /// cannot be told apart has them, too.
  virtual std::vector<TokenId> encode_ids(const Conversation& conversation) const;
  /// Ids up to where the assistant's answer begins. The last message must not be the assistant's.
  virtual std::vector<TokenId> encode_prompt(const Conversation& conversation) const = 0;
  /// A query and a document (text/query_and_document.h) as a model sees them that judges how well
  /// they go together, which it says at the last id: by a template that knows of such pairs as that
  /// has it, else as a question and its answer. Errors: DataError where they are no pair.
  virtual std::vector<TokenId> encode_pair(const Conversation& pair) const;
  /// The same as text, for people to read; exactly what the Jinja engine printed where one is used.
  virtual std::string render(const Conversation& conversation,
                             bool add_generation_prompt) const = 0;
  /// Ids that end an answer (eos of the tokenizer and the template's stop words).
  virtual std::vector<TokenId> stop_ids() const = 0;
  /// What was chosen, e.g. "tokenizer_config.json (jinja)" or "qwen"; shown in banners, part of
  /// cache keys.
  virtual std::string description() const = 0;
  virtual uint64_t content_hash() const = 0;
};

/// Reads messages as OpenAI writes them: [{"role": …, "content": …, …}], or {"messages": …,
/// "tools": …}. `origin` begins error texts. Errors: DataError naming the message and what is wrong
/// with it.
Conversation parse_conversation(const Json& json, const std::string& origin);

}  // namespace danlu::text
