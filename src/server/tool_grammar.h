#pragma once
// Grammars that make a model call tools, or call them well, in the syntax that its template writes.
//
// An answer is reasoning, where the template thinks, which stays free up to its end mark; then calls, or text up to a
// mark that begins a call. So a lazy start needs nothing of the sampler: before the mark the grammar lets everything
// through but control tokens, and from the mark on it holds the call to its form. What it makes CallReader reads back.

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/chat_format.h"
#include "server/chat_tools.h"

namespace tessera {

/// How a grammar spells a mark: a literal, or <[id]> where it is a control token.
using MarkSpelling = std::function<std::string(std::string_view mark)>;

/// The grammar of answers to a request with tools.
/// format: with_tools(). thinking: how the answer begins. schema: what an answer that is no call is restricted to; "":
/// nothing. Arguments fit their tools' schemas where tools are strict or a call is required; where a tool that is not
/// strict has a schema that no grammar can follow (json_schema.h), its arguments are any JSON object.
/// Errors: those of json_schema_grammar(), naming the tool's field. REQUIRES: tools not empty.
Result<std::string> tool_grammar(const ChatFormat& format, const ToolRequest& request, Thinking thinking,
                                 const std::string& schema, const MarkSpelling& spelling);

/// The grammar of answers that are a schema's documents behind free reasoning. Errors: those of json_schema_grammar().
Result<std::string> thinking_schema_grammar(const ChatFormat& format, Thinking thinking, const std::string& schema,
                                            const MarkSpelling& spelling);

}  // namespace tessera
