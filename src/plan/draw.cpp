#include "plan/draw.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "base/message.h"

namespace danlu::plan {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string colour(const Span& span) {
  std::array<int, 3> rgb = {120, 190, 120};  // backward
  if (span.work == arch::Work::kForward) rgb = {125, 170, 235};
  if (span.work == arch::Work::kBackwardInput) rgb = {110, 200, 200};
  if (span.work == arch::Work::kBackwardWeight) rgb = {240, 175, 95};
  const double shade = 1.0 / (1.0 + 0.25 * static_cast<double>(span.chunk));
  return fmt::format("#{:02x}{:02x}{:02x}", static_cast<int>(rgb[0] * shade),
                     static_cast<int>(rgb[1] * shade), static_cast<int>(rgb[2] * shade));
}

}  // namespace

std::string draw_schedule(const Simulated& simulated, const std::string& title) {
  constexpr double kLeft = 70, kTop = 40, kRow = 28, kWidth = 1400;
  const double scale = simulated.seconds > 0 ? kWidth / simulated.seconds : 0;
  const auto stages = static_cast<double>(simulated.busy.size());
  std::string out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "<svg xmlns=\"{}\" width=\"{:.0f}\" height=\"{:.0f}\" ",
                 "http://www.w3.org/2000/svg", kLeft + kWidth + 10, kTop + kRow * stages + 20);
  fmt::format_to(to, "font-family=\"sans-serif\" font-size=\"11\">\n");
  fmt::format_to(to, "<text x=\"8\" y=\"20\" font-size=\"14\">{}</text>\n",
                 tr("{}; bubble {:.1f} %", escaped(title), 100 * simulated.bubble));
  for (size_t s = 0; s < simulated.busy.size(); ++s) {
    fmt::format_to(to, "<text x=\"8\" y=\"{:.1f}\">stage {}</text>\n",
                   kTop + kRow * static_cast<double>(s) + 17, s);
  }
  for (const Span& span : simulated.spans) {
    const double x = kLeft + span.start * scale, width = (span.end - span.start) * scale;
    const double y = kTop + kRow * static_cast<double>(span.stage);
    fmt::format_to(to,
                   "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"24\" fill=\"{}\" "
                   "stroke=\"#fff\" stroke-width=\"0.5\"/>\n",
                   x, y, width, colour(span));
    if (width > 9)
      fmt::format_to(to, "<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                     x + width / 2, y + 16, span.micro_batch);
  }
  out += "</svg>\n";
  return out;
}

}  // namespace danlu::plan
