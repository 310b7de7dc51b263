// data/formats/objects.h: ms-swift's column `objects`: {"ref": names, "bbox": boxes, "bbox_type":
// "real" or "norm1", "image_id": the picture of each box}, for the tags <ref-object> and <bbox>.
#pragma once
#include <string>

#include "base/json.h"
#include "data/formats/row.h"

namespace danlu::data {

/// Reads the column of a row whose messages hold one of the tags; without tags or without the
/// column nothing is read. Corners are put in order. False: *problem is set.
bool attach_objects(const Json& row, const std::string& column, text::Conversation* conversation,
                    RowProblem* problem);

}  // namespace danlu::data
