// docs/profiles.md shows the profiles as they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/file.h"
#include "cli/commands/commands.h"
#include "cli/commands/train_profiles.h"

namespace danlu::settings {
namespace {

namespace fs = std::filesystem;

/// An option's default: as the table has it, else as its help text says it.
std::string own_default(const OptionSpec& spec) {
  if (!spec.default_text.empty()) return spec.default_text;
  const size_t at = spec.help.find("(default: ");
  if (at == std::string::npos) return "";
  const size_t begin = at + std::string("(default: ").size();
  return spec.help.substr(begin, spec.help.find(')', begin) - begin);
}

std::string row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) out += " " + cell + (cell.empty() ? "|" : " |");
  return out + "\n";
}

std::string values_table() {
  const OptionTable table = cli::sft_options();
  std::vector<std::string> heading = {"option"};
  std::set<std::string> named;
  for (const OptionProfile& profile : cli::train_profiles("sft")) {
    heading.push_back(profile.name);
    for (const auto& [option, value] : profile.values) named.insert(option);
  }
  std::string out = row(heading) + row(std::vector<std::string>(heading.size(), "---"));
  for (const OptionSpec& spec : table.specs()) {
    if (!named.count(spec.name)) continue;
    std::vector<std::string> cells = {"`--" + spec.name + "`", own_default(spec)};
    for (const OptionProfile& profile : cli::train_profiles("sft")) {
      if (profile.values.empty()) continue;
      const auto at = profile.values.find(spec.name);
      std::string cell = at == profile.values.end() ? "" : at->second;
      for (const auto& [mark, values] : profile.values_beside) {
        const auto older = values.find(spec.name);
        if (older != values.end()) cell += "; with `--" + mark + "` " + older->second;
      }
      cells.push_back(cell);
    }
    out += row(cells);
  }
  return out;
}

/// What a mark needs beside it; another profile's marks by its name.
std::string companions(const ProfileMark& mark) {
  if (mark.beside.empty()) return "";
  const std::vector<ProfileMark> known = cli::mindspeed_profile().marks;
  std::string names;
  for (const std::string& name : mark.beside) {
    if (std::none_of(known.begin(), known.end(),
                     [&](const ProfileMark& one) { return one.name == name; }))
      names += "`--" + name + "`, ";
  }
  return ": each beside " + names + "or a flag of mindspeed";
}

std::string marks_table() {
  std::string out = row({"profile", "system", "chosen by"}) + row({"---", "---", "---"});
  for (const OptionProfile& profile : cli::train_profiles("posttrain")) {
    std::string by = profile.of_command ? "`danlu posttrain`" : "";
    if (profile.name == "alpaca") by = "`danlu train` without `--stage`";
    if (profile.name == "llamafactory") by = "`danlu train` with `--stage`";
    for (const ProfileMark& mark : profile.marks) {
      by += (by.empty() ? "`--" : ", `--") + mark.name + "`";
      if (!mark.unless.empty()) by += " (without `--" + mark.unless + "`)";
      if (!mark.beside.empty() && profile.marks.front().beside.empty())
        by += " (beside `--" + mark.beside.front() + "`)";
    }
    if (!profile.marks.empty()) by += companions(profile.marks.front());
    out += row({profile.name, profile.system, by});
  }
  return out;
}

/// `page` with the lines between `begin`… and the next end mark replaced.
std::string with_block(const std::string& page, const std::string& begin, const std::string& text) {
  const size_t from = page.find('\n', page.find(begin)) + 1;
  const size_t to = page.find("<!-- end -->", from);
  return page.substr(0, from) + text + page.substr(to);
}

TEST(ProfilesPage, ItsTablesAreTheData) {
  const fs::path path = fs::path(DANLU_SOURCE_DIR) / "docs/profiles.md";
  const std::string page = read_file(path);
  const std::string made =
      with_block(with_block(page, "<!-- values", values_table()), "<!-- marks", marks_table());
  if (std::getenv("DANLU_UPDATE_HELP")) {
    write_file_atomic(path, made);
    return;
  }
  EXPECT_EQ(page, made) << "after an intended change: make help-texts";
}

TEST(ProfilesPage, EveryMarkIsANameOfTheTable) {
  const OptionTable table = cli::sft_options();
  for (const OptionProfile& profile : cli::train_profiles("sft")) {
    for (const ProfileMark& mark : profile.marks)
      EXPECT_TRUE(table.find_spec(mark.name)) << profile.name << ": " << mark.name;
  }
}

}  // namespace
}  // namespace danlu::settings
