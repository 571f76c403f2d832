#pragma once
// The tools of a chat request, in OpenAI's form: which there are, which may or must be called.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/call_reader.h"
#include "server/request_fields.h"

namespace tessera {

inline constexpr size_t kToolsMax = 512;

struct ToolSpec {
  std::string name;
  std::string parameters;  // the schema of its arguments: JSON, an object
  bool strict = false;     // arguments must fit the schema
  std::string label;       // of parameters in errors: field "tools[2].function.parameters"
};

struct ToolRequest {
  std::vector<ToolSpec> tools;  // that may be called; empty: none
  bool required = false;        // one must be
  bool parallel = true;         // several may be, in one answer
  bool restricted = false;      // the model is shown others, which may not be
};

/// What an API calls a tool's fields, in errors.
struct ToolFields {
  std::string name = "function.name";
  std::string parameters = "function.parameters";
};

/// Reads tools, tool_choice ("auto", "none", "required", or an object that names one, or those that are allowed) and
/// parallel_tool_calls. Where none may be called, the body has none afterwards. Errors: kInvalidArgument naming the
/// field: a tool without a name, two of one name, parameters that are no schema of an object, a choice of a tool that
/// is not there; kUnsupported: tools that are no functions.
Result<ToolRequest> read_tools(Json& body, const ToolFields& names);

/// How a parameter of this schema stands between tags; nothing: as JSON.
std::optional<ChatTools::Text> parameter_text(const Json& schema);

/// What readers of answers know of them.
std::shared_ptr<const ChatTools> chat_tools(const std::vector<ToolSpec>& tools);

/// Shows tools to a model whose template cannot: a system message tells what they are and how to call one (a JSON
/// object with "name" and "arguments"), and earlier calls and their results become text. REQUIRES: tools not empty.
void write_tools_into_messages(Json& body, const std::vector<ToolSpec>& tools);

}  // namespace tessera
