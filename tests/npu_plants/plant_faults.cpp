// Copies sources and plants faults in the copies, each asleep until danlu_planted says its name.
// usage: plant_faults PLANTS SOURCES OUTPUT
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Plant {
  std::string name, file, find, put;
};

std::string words_behind(const std::string& line, const std::string& key) {
  return line.size() > key.size() + 1 ? line.substr(key.size() + 1) : "";
}

std::vector<Plant> plants_in(const char* path) {
  std::vector<Plant> plants;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "plant") plants.push_back({words_behind(line, key), "", "", ""});
    if (key == "file") plants.back().file = words_behind(line, key);
    if (key == "find") plants.back().find = words_behind(line, key);
    if (key == "put") plants.back().put = words_behind(line, key);
  }
  return plants;
}

std::string content(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The same with one blank for any run of blanks, and where each character came from.
std::string squeezed(const std::string& text, std::vector<size_t>& from) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool blank = text[i] == ' ' || text[i] == '\n';
    if (blank && (out.empty() || out.back() == ' ')) continue;
    out += blank ? ' ' : text[i];
    from.push_back(i);
  }
  from.push_back(text.size());
  return out;
}

[[noreturn]] void fail(const Plant& plant, const char* why) {
  std::fprintf(stderr, "plant %s: '%s' %s in %s\n", plant.name.c_str(), plant.find.c_str(), why,
               plant.file.c_str());
  std::exit(1);
}

/// Plants of one place follow each other: the first that is awake is taken.
std::string planted(const std::vector<Plant>& at_one_place) {
  const std::string& find = at_one_place.front().find;
  std::string text;
  const bool is_statement = find.ends_with(";");
  for (const Plant& plant : at_one_place) {
    const std::string asked = "danlu_planted(\"" + plant.name + "\")";
    text += is_statement ? "if (" + asked + ") { " + plant.put + " } else "
                         : "(" + asked + " ? (" + plant.put + ") : ";
  }
  if (is_statement) return text + "{ " + find + " }";
  return text + "(" + find + ")" + std::string(at_one_place.size(), ')');
}

}  // namespace

int main(int, char** argv) {
  const fs::path sources = argv[2], output = argv[3];
  fs::create_directories(output);
  std::map<std::pair<std::string, std::string>, std::vector<Plant>> places;
  for (const Plant& plant : plants_in(argv[1])) places[{plant.file, plant.find}].push_back(plant);
  for (const auto& entry : fs::directory_iterator(sources)) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string name = entry.path().filename();
    std::string text = content(entry.path());
    for (const auto& [place, plants] : places) {
      if (place.first != name) continue;
      std::vector<size_t> from;
      const std::string plain = squeezed(text, from);
      const size_t at = plain.find(place.second);
      if (at == std::string::npos) fail(plants.front(), "is not");
      if (plain.find(place.second, at + 1) != std::string::npos)
        fail(plants.front(), "is more than once");
      text.replace(from[at], from[at + place.second.size()] - from[at], planted(plants) + " ");
    }
    const std::string whole = "bool danlu_planted(const char* name);\n" + text;
    if (content(output / name) != whole) std::ofstream(output / name) << whole;
  }
  std::ofstream(output / "planted.cpp") << R"(#include <cstdlib>
#include <cstring>
bool danlu_planted(const char* name);
bool danlu_planted(const char* name) {
  static const char* const plant = std::getenv("DANLU_TEST_NPU_PLANT");
  return plant && std::strcmp(plant, name) == 0;
}
)";
}
