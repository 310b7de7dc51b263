#include "pictures/picture_fonts.h"

#include <fontconfig/fontconfig.h>
#include <pango/pangocairo.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "base/log.h"

namespace danlu::pictures {
namespace {

void say_quietly(const char*, GLogLevelFlags, const char* message, void*) {
  log::debug("[picture] pango: {}", message);
}

/// Fontconfig's own start complains on stderr of a machine without its files; Pango's would run it
/// in a thread, and writes "expect ugly output" for want of fonts.
PangoFontMap* open_font_map(const std::filesystem::path& scratch) {
  FcConfig* config = FcConfigCreate();
  if (!config) return nullptr;
  FcConfigParseAndLoad(config, nullptr, FcFalse);
  if (!scratch.empty()) {
    // Where it can keep its lists nowhere, it says so once a folder.
    char* last = g_markup_printf_escaped("<fontconfig><cachedir>%s</cachedir></fontconfig>",
                                         scratch.c_str());
    FcConfigParseAndLoadFromMemory(config, reinterpret_cast<const FcChar8*>(last), FcFalse);
    g_free(last);
  }
  FcConfigSetCurrent(config);
  if (std::error_code ignored; !scratch.empty()) std::filesystem::remove_all(scratch, ignored);
  const FcFontSet* fonts = FcConfigGetFonts(config, FcSetSystem);
  const bool none = !fonts || fonts->nfont == 0;
  FcConfigDestroy(config);
  if (none) return nullptr;
  g_log_set_handler("Pango",
                    static_cast<GLogLevelFlags>(G_LOG_LEVEL_WARNING | G_LOG_LEVEL_CRITICAL),
                    say_quietly, nullptr);
  return pango_cairo_font_map_new();
}

PangoLayoutPtr lay_out(PangoFontMap* map, std::string_view text, double size, bool bold,
                       bool chinese) {
  const std::unique_ptr<PangoContext, GObjectUnref> context(pango_font_map_create_context(map));
  // A Chinese font's digits and Latin letters are not those of a text without Chinese.
  const bool ascii =
      std::ranges::all_of(text, [](char c) { return static_cast<signed char>(c) >= 0; });
  pango_context_set_language(context.get(),
                             pango_language_from_string(chinese && !ascii ? "zh-cn" : "en"));
  pango_context_set_base_dir(context.get(), PANGO_DIRECTION_LTR);
  // PNG and SVG are to have the same places for everything, whatever the desktop's settings are.
  pango_context_set_round_glyph_positions(context.get(), FALSE);
  cairo_font_options_t* options = cairo_font_options_create();
  cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
  cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
  pango_cairo_context_set_font_options(context.get(), options);
  cairo_font_options_destroy(options);

  PangoLayoutPtr layout(pango_layout_new(context.get()));
  PangoFontDescription* font = pango_font_description_new();
  pango_font_description_set_family_static(font, "Sans");
  pango_font_description_set_absolute_size(font, size * PANGO_SCALE);
  pango_font_description_set_weight(font, bold ? PANGO_WEIGHT_BOLD : PANGO_WEIGHT_NORMAL);
  pango_layout_set_font_description(layout.get(), font);
  pango_font_description_free(font);
  pango_layout_set_single_paragraph_mode(layout.get(), TRUE);
  pango_layout_set_text(layout.get(), text.data(), static_cast<int>(text.size()));
  return layout;
}

bool shows(PangoFontMap* map, std::string_view text) {
  const PangoLayoutPtr layout = lay_out(map, text, 12, false, false);
  return pango_layout_get_unknown_glyphs_count(layout.get()) == 0;
}

/// Never destroyed: Pango's threads may still read it.
PangoFontMap* found_map = nullptr;

PangoFontMap* font_map() {
  find_fonts({});
  return found_map;
}

}  // namespace

void find_fonts(const std::filesystem::path& scratch) {
  static std::once_flag once;
  std::call_once(once, [&] {
    std::string ascii;
    for (char c = ' '; c <= '~'; ++c) ascii += c;
    PangoFontMap* opened = open_font_map(scratch);
    if (opened && shows(opened, ascii)) found_map = opened;
  });
}

PangoLayoutPtr layout_text(std::string_view text, double size, bool bold, bool chinese) {
  PangoFontMap* map = font_map();
  return map ? lay_out(map, text, size, bold, chinese) : nullptr;
}

bool fonts_show(std::string_view text) {
  PangoFontMap* map = font_map();
  return map && shows(map, text);
}

std::string showable(std::string_view text) {
  PangoFontMap* map = font_map();
  char* valid = g_utf8_make_valid(text.data(), static_cast<gssize>(text.size()));
  std::string shown;
  for (const char* at = valid; *at; at = g_utf8_next_char(at)) {
    const std::string_view character(at, static_cast<size_t>(g_utf8_next_char(at) - at));
    if (g_unichar_iscntrl(g_utf8_get_char(at))) {
      shown += ' ';
    } else if (character.size() == 1 || !map || shows(map, character)) {
      shown += character;
    } else {
      shown += '?';
    }
  }
  g_free(valid);
  return shown;
}

}  // namespace danlu::pictures
