#include "support/svg.h"

#include <glib.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <sstream>

namespace danlu::test {
using namespace pictures;
namespace {

using Attributes = std::map<std::string, std::string>;

/// The value of an attribute, or of a property in `style`; "": there is neither.
std::string property(const Attributes& attributes, const std::string& name) {
  if (const auto own = attributes.find(name); own != attributes.end()) return own->second;
  const auto style = attributes.find("style");
  if (style == attributes.end()) return "";
  std::istringstream parts(style->second);
  for (std::string part; std::getline(parts, part, ';');) {
    part.erase(0, part.find_first_not_of(' '));
    if (part.starts_with(name + ":")) return part.substr(name.size() + 1);
  }
  return "";
}

bool same(Stroke a, Stroke b) {
  return std::abs(a.red - b.red) + std::abs(a.green - b.green) + std::abs(a.blue - b.blue) < 1;
}

/// "rgb(100%,72%,60%)"
Stroke color_of(const std::string& text) {
  Stroke color{};
  std::sscanf(text.c_str(), "rgb(%lf%%, %lf%%, %lf%%)", &color.red, &color.green, &color.blue);
  return color;
}

/// Commands M, L, C and Z with absolute coordinates, which are all that cairo writes.
std::vector<Polyline> parts_of(const std::string& commands) {
  std::vector<Polyline> parts;
  std::istringstream words(commands);
  for (std::string word; words >> word;) {
    if (word == "Z" || word == "L" || word == "C") continue;
    if (word == "M") {
      parts.emplace_back();
      continue;
    }
    Point point{std::strtod(word.c_str(), nullptr), std::numeric_limits<double>::quiet_NaN()};
    if (words >> word) point.y = std::strtod(word.c_str(), nullptr);
    EXPECT_FALSE(parts.empty()) << commands;
    if (!parts.empty()) parts.back().push_back(point);
  }
  std::erase_if(parts, [](const Polyline& part) { return part.size() < 2; });
  return parts;
}

double number(const Attributes& attributes, const char* name) {
  const auto found = attributes.find(name);
  return found == attributes.end() ? 0 : std::strtod(found->second.c_str(), nullptr);
}

struct Box {
  double left = 1e9, top = 1e9, right = -1e9, bottom = -1e9;
  void add(double x, double y) {
    left = std::min(left, x), right = std::max(right, x);
    top = std::min(top, y), bottom = std::max(bottom, y);
  }
};

}  // namespace

struct SvgReader {
  Svg& svg;
  std::map<std::string, Polyline> shapes;  // of glyphs, by id
  std::string symbol;
  std::string* words = nullptr;
  bool text_begins = false;

  void start(const std::string& element, const Attributes& attributes) {
    if (element == "title") words = &svg.title_;
    if (element == "desc") words = &svg.words_;
    if (element == "symbol") symbol = attributes.at("id");
    // cairo 1.18 writes <g id=…> around a glyph's shape.
    if (element == "g" && attributes.contains("id") && attributes.at("id").starts_with("glyph-"))
      symbol = attributes.at("id");
    if (element == "g") text_begins = true;
    if (element == "use") use(attributes);
    if (element == "path") path(attributes);
  }
  void end(const std::string& element) {
    if (element == "title" || element == "desc") words = nullptr;
    if (element == "symbol" || element == "g") symbol.clear();
  }
  void use(const Attributes& attributes) {
    if (text_begins) svg.texts_.emplace_back();
    text_begins = false;
    const Point at{number(attributes, "x"), number(attributes, "y")};
    for (const char* link : {"xlink:href", "href"}) {
      if (!attributes.contains(link)) continue;
      svg.glyphs_.push_back(at);
      for (const Point& point : shapes[attributes.at(link).substr(1)])
        svg.texts_.back().push_back({at.x + point.x, at.y + point.y});
    }
  }
  void path(const Attributes& attributes) {
    const std::vector<Polyline> parts = parts_of(attributes.at("d"));
    if (!symbol.empty()) {
      for (const Polyline& part : parts)
        shapes[symbol].insert(shapes[symbol].end(), part.begin(), part.end());
      return;
    }
    const std::string stroke = property(attributes, "stroke");
    const bool stroked = stroke.starts_with("rgb");
    svg.paths_.push_back(
        {stroked, color_of(stroked ? stroke : property(attributes, "fill")), parts});
  }
};

Svg::Svg(const std::string& text) {
  SvgReader reader{*this, {}, {}, nullptr, false};
  GMarkupParser parser{};
  parser.start_element = [](GMarkupParseContext*, const char* element, const char** names,
                            const char** values, void* to, GError**) {
    Attributes attributes;
    for (; *names; ++names, ++values) attributes[*names] = *values;
    static_cast<SvgReader*>(to)->start(element, attributes);
  };
  parser.end_element = [](GMarkupParseContext*, const char* element, void* to, GError**) {
    static_cast<SvgReader*>(to)->end(element);
  };
  parser.text = [](GMarkupParseContext*, const char* text, gsize size, void* to, GError**) {
    if (std::string* words = static_cast<SvgReader*>(to)->words) words->append(text, size);
  };
  GMarkupParseContext* context =
      g_markup_parse_context_new(&parser, static_cast<GMarkupParseFlags>(0), &reader, nullptr);
  GError* error = nullptr;
  const bool well_formed = g_markup_parse_context_parse(context, text.data(),
                                                        static_cast<gssize>(text.size()), &error) &&
                           g_markup_parse_context_end_parse(context, &error);
  EXPECT_TRUE(well_formed) << (error ? error->message : "") << "\n" << text.substr(0, 500);
  g_clear_error(&error);
  g_markup_parse_context_free(context);
}

std::vector<std::string> Svg::words() const {
  std::vector<std::string> lines;
  std::istringstream all(words_);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

std::vector<Polyline> Svg::polylines(Stroke stroke) const {
  std::vector<Polyline> found;
  for (const Path& path : paths_) {
    if (path.stroked && same(path.color, stroke))
      found.insert(found.end(), path.parts.begin(), path.parts.end());
  }
  return found;
}

Polyline Svg::longest(Stroke stroke) const {
  Polyline longest;
  for (const Polyline& line : polylines(stroke)) {
    if (line.size() >= longest.size()) longest = line;  // the legend's comes first
  }
  return longest;
}

size_t Svg::place_of_longest(Stroke stroke) const {
  const Polyline line = longest(stroke);
  for (size_t i = paths_.size(); i-- > 0;) {
    if (!paths_[i].stroked || !same(paths_[i].color, stroke)) continue;
    for (const Polyline& part : paths_[i].parts) {
      if (part.size() == line.size()) return i;
    }
  }
  return 0;
}

size_t Svg::dots(Stroke fill) const {
  return static_cast<size_t>(std::ranges::count_if(
      paths_, [&](const Path& path) { return !path.stroked && same(path.color, fill); }));
}

std::vector<std::pair<Stroke, Polyline>> Svg::filled() const {
  std::vector<std::pair<Stroke, Polyline>> found;
  for (const Path& path : paths_) {
    for (const Polyline& part : path.parts) {
      if (!path.stroked) found.emplace_back(path.color, part);
    }
  }
  return found;
}

std::vector<Point> Svg::all_points() const {
  std::vector<Point> all = glyphs_;
  for (const auto& text : texts_) all.insert(all.end(), text.begin(), text.end());
  for (const Path& path : paths_) {
    for (const Polyline& part : path.parts) all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<std::string> Svg::words_that_touch() const {
  std::vector<Box> boxes;
  for (const auto& text : texts_) {
    Box box;
    for (const Point& point : text) box.add(point.x, point.y);
    boxes.push_back(box);
  }
  std::vector<std::string> found;
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Box &a = boxes[i], &b = boxes[j];
      if (a.left < b.right + 3 && b.left < a.right + 3 && a.top < b.bottom + 3 &&
          b.top < a.bottom + 3)
        found.push_back(std::to_string(a.left) + "," + std::to_string(a.top) + " and " +
                        std::to_string(b.left) + "," + std::to_string(b.top));
    }
  }
  return found;
}

}  // namespace danlu::test
