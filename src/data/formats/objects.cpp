#include "data/formats/objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/formats/columns.h"

namespace danlu::data {
namespace {

bool has_tags(const text::Conversation& conversation) {
  return std::any_of(conversation.messages.begin(), conversation.messages.end(),
                     [](const text::Message& message) {
                       return message.content.find("<ref-object>") != std::string::npos ||
                              message.content.find("<bbox>") != std::string::npos;
                     });
}

bool refuse_objects(const std::string& detail, RowProblem* problem) {
  *problem = {"objects in no known form", detail};
  return false;
}

/// The list under `key`; empty where there is none.
bool read_list(const Json& objects, const char* key, Json* list, RowProblem* problem) {
  *list = Json::array();
  const Json* value = find_value(objects, key);
  if (!value) return true;
  if (!value->is_array())
    return refuse_objects(fmt::format("\"{}\" must be a list, got {}", key, kind_of(*value)),
                          problem);
  *list = *value;
  return true;
}

bool read_box(const Json& value, std::vector<double>* box, RowProblem* problem) {
  const auto is_number = [](const Json& number) { return number.is_number(); };
  if (!value.is_array() || (value.size() != 2 && value.size() != 4) ||
      !std::all_of(value.begin(), value.end(), is_number))
    return refuse_objects("a box is two or four numbers", problem);
  for (const Json& number : value) box->push_back(number.get<double>());
  if (box->size() == 2) return true;
  if ((*box)[0] > (*box)[2]) std::swap((*box)[0], (*box)[2]);
  if ((*box)[1] > (*box)[3]) std::swap((*box)[1], (*box)[3]);
  return true;
}

bool read_objects(const Json& objects, text::Grounding* read, RowProblem* problem) {
  Json names, boxes, pictures;
  if (!read_list(objects, "ref", &names, problem) || !read_list(objects, "bbox", &boxes, problem) ||
      !read_list(objects, "image_id", &pictures, problem))
    return false;
  for (const Json& name : names) {
    if (!name.is_string()) return refuse_objects("a name that is no text", problem);
    read->names.push_back(name.get<std::string>());
  }
  for (const Json& box : boxes)
    if (!read_box(box, &read->boxes.emplace_back(), problem)) return false;
  for (const Json& picture : pictures) {
    if (!picture.is_number_integer()) return refuse_objects("\"image_id\" holds numbers", problem);
    read->pictures.push_back(picture.get<int64_t>());
  }
  // The first picture is that of those that are left out.
  read->pictures.resize(read->boxes.size(), 0);
  const Json* type = find_value(objects, "bbox_type");
  if (!type) return true;
  read->in_shares = *type == "norm1";
  if (!read->in_shares && *type != "real")
    return refuse_objects(R"("bbox_type" is "real" or "norm1")", problem);
  return true;
}

}  // namespace

bool attach_objects(const Json& row, const std::string& column, text::Conversation* conversation,
                    RowProblem* problem) {
  const Json* value = find_value(row, column);
  if (!value || !has_tags(*conversation)) return true;
  const auto objects = parse_if_text(*value);
  if (!objects || !objects->is_object()) {
    *problem = wrong_type(column, "an object", objects ? *objects : *value);
    return false;
  }
  text::Grounding read;
  if (!read_objects(*objects, &read, problem)) return false;
  if (!read.names.empty() || !read.boxes.empty()) conversation->grounding = std::move(read);
  return true;
}

}  // namespace danlu::data
