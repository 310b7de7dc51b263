#include "train/report/shown_sample.h"

#include <string_view>
#include <vector>

#include "base/message.h"

namespace danlu::train {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text = end == text.npos ? "" : text.substr(end + 1);
  }
  return lines;
}

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

/// The two ends of a line that is too long.
std::string ends_of(std::string_view line) {
  constexpr size_t kMost = 200, kHead = 120, kTail = 40;
  std::vector<size_t> begins;  // of characters of UTF-8
  for (size_t i = 0; i < line.size(); ++i) {
    if (begins_character(line[i])) begins.push_back(i);
  }
  if (begins.size() <= kMost) return std::string(line);
  return tr("{} … {} more characters … {}", std::string(line.substr(0, begins[kHead])),
            begins.size() - kHead - kTail, std::string(line.substr(begins[begins.size() - kTail])));
}

/// The first `head` lines and, after what says how many are between, the last.
void add_part(std::string_view part, size_t head, std::string& out) {
  const std::vector<std::string_view> lines = lines_of(part);
  if (lines.size() <= head + 1) {
    for (const std::string_view line : lines) out += ends_of(line) + "\n";
    return;
  }
  for (size_t i = 0; i < head; ++i) out += ends_of(lines[i]) + (i + 1 < head ? "\n" : "");
  out += (head > 1 ? "\n" : " ") +
         tr("… {} more lines; -v shows all … {}\n", lines.size() - head - 1, ends_of(lines.back()));
}

}  // namespace

std::string shown_sample(const std::string& sample) {
  std::string_view text = sample;
  while (text.ends_with('\n')) text.remove_suffix(1);
  const size_t labels = text.rfind("\n[LABELS] ");
  std::string out;
  add_part(text.substr(0, labels), 3, out);
  if (labels != text.npos) add_part(text.substr(labels + 1), 1, out);
  if (!out.empty()) out.pop_back();
  return out;
}

}  // namespace danlu::train
