#include "hub/address.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "hub/environment.h"

namespace danlu::hub {
namespace {
namespace {

/// "%20" and its like as what they stand for.
std::string decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '%' && i + 2 < text.size() &&
                           std::isxdigit(static_cast<unsigned char>(text[i + 1])) != 0 &&
                           std::isxdigit(static_cast<unsigned char>(text[i + 2])) != 0;
    out += is_escape ? static_cast<char>(std::strtol(text.substr(i + 1, 2).c_str(), nullptr, 16))
                     : text[i];
    if (is_escape) i += 2;
  }
  return out;
}

std::vector<std::string> parts_of_path(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.push_back(decoded(path.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

/// "www.modelscope.cn:443" of "https://www.modelscope.cn:443/…".
std::string host_of(const std::string& address) {
  const size_t begin = address.find("://") + 3;
  return address.substr(begin, std::min(address.find('/', begin), address.size()) - begin);
}

std::optional<Hub> hub_at(std::string host) {
  for (const Hub hub : {Hub::kHuggingFace, Hub::kModelScope}) {
    if (host == host_of(endpoint_of(hub))) return hub;
  }
  if (host.starts_with("www.")) host.erase(0, 4);
  if (host == "huggingface.co" || host == "hf.co" || host == "hf-mirror.com")
    return Hub::kHuggingFace;
  if (host == "modelscope.cn" || host == "modelscope.com" || host == "modelscope.ai")
    return Hub::kModelScope;
  return std::nullopt;
}

/// Errors: UsageError.
[[noreturn]] void refuse_address(const std::string& text) {
  throw UsageError(tr("[download] {} leads to no repository of Hugging Face or ModelScope", text),
                   tr("danlu download ORGANISATION/NAME, with HF_ENDPOINT for a mirror"));
}

}  // namespace
}  // namespace

std::optional<Address> parse_address(const std::string& text) {
  if (!text.starts_with("https://") && !text.starts_with("http://")) return std::nullopt;
  const std::string bare = text.substr(0, text.find_first_of("?#"));
  const std::string host = host_of(bare);
  const std::optional<Hub> hub = hub_at(host);
  if (!hub) refuse_address(text);
  std::vector<std::string> parts = parts_of_path(bare.substr(bare.find(host) + host.size()));
  Address address;
  address.repository.hub = *hub;
  if (host == "hf-mirror.com") address.endpoint = "https://" + host;
  if (!parts.empty() && (parts[0] == "datasets" || parts[0] == "models")) {
    if (parts[0] == "datasets") address.repository.kind = Kind::kDataset;
    parts.erase(parts.begin());
  }
  if (parts.size() < 2 || parts[0] == "spaces" || parts[0] == "api") refuse_address(text);
  if (parts[1].ends_with(".git")) parts[1].resize(parts[1].size() - 4);
  address.repository.id = parts[0] + "/" + parts[1];
  if (parts.size() < 4) return address;  // a page of the repository
  const std::string& what = parts[2];
  if (what != "resolve" && what != "blob" && what != "raw" && what != "tree") refuse_address(text);
  address.repository.revision = parts[3];
  for (size_t i = 4; i < parts.size(); ++i)
    address.file += (address.file.empty() ? "" : "/") + parts[i];
  if (what == "tree" && !address.file.empty()) address.file += '/';
  return address;
}

}  // namespace danlu::hub
