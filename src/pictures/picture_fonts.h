// pictures/picture_fonts.h: the machine's fonts, as far as pictures need them.
#pragma once
#include <pango/pango.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace danlu::pictures {

struct GObjectUnref {
  void operator()(void* object) const { g_object_unref(object); }
};
using PangoLayoutPtr = std::unique_ptr<PangoLayout, GObjectUnref>;

/// Looks for fonts, by fontconfig's rules (FONTCONFIG_FILE, …); only the first call does.
/// Fontconfig may want to keep lists of them: where it can write nowhere else, it makes the
/// directory `scratch` (it may be empty: none), which is removed again.
void find_fonts(const std::filesystem::path& scratch);

/// One line of text, in a sans-serif font of `size` units (ascent to descent is some 1.2 of them).
/// Looks the same at every scale. Null where the machine has no font that shows ASCII; nothing is
/// said of that on stderr. Not for two threads at once.
PangoLayoutPtr layout_text(std::string_view text, double size, bool bold, bool chinese);

/// Whether there is a glyph for every character. Without fonts: no.
bool fonts_show(std::string_view text);

/// Valid UTF-8 in one line: '?' for what the fonts have no glyph of, a space for control
/// characters.
std::string showable(std::string_view text);

}  // namespace danlu::pictures
