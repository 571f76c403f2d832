#pragma once
// What the reference server does to a chat request before the template sees it, as a layer of its own.
//
// Messages are reduced to known keys; null content becomes empty; text parts are joined by newlines, or strings are
// wrapped into parts, as the template wants; `developer` is called `system`; a system message is folded into the next
// message when the template ignores it; arguments of tool calls become objects where the template prints them well;
// tools are reduced to name, description and parameters. All of it was measured on the reference server
// (scripts/request_golden.py asks it again), which decides by trial renderings, and so does Capabilities here.
// Works on values of one Runtime; no state.

#include <string>
#include <string_view>

#include "base/status.h"
#include "tokenizer/template/jinja.h"

namespace tessera::jinja {

/// What trial renderings found a template to do.
struct Capabilities {
  bool system_role = true;        // prints the content of a system message
  bool string_content = true;     // prints content that is a string
  bool typed_content = false;     // prints the text parts of content that is a list
  bool object_arguments = false;  // prints the arguments of a tool call given as an object, not in Python's notation
  bool channels = false;          // the gpt-oss family: knows the role `developer`, reads reasoning from `thinking`
  bool reasoning = false;         // prints the reasoning of an assistant message before its content
  bool reasoning_after_prompt = false;  // reasoning_begin follows the generation prompt, else it starts the turn
  Text reasoning_begin;                 // what stands before the reasoning
  Text reasoning_end;                   // what stands between reasoning and content
};

/// The last assistant message when the prompt is to end inside it.
struct Continuation {
  bool wanted = false;
  Text reasoning;
  Text content;
};

/// A request whose form was checked and whose messages were rewritten.
struct RewrittenRequest {
  Variables variables;  // messages, tools, thinking and effort switches, extra arguments
  bool add_generation_prompt = true;
  Continuation continuation;  // its message is not among the messages
};

/// Parses and rewrites a request body.
/// Errors: kInvalidArgument where the reference answers 400 (not JSON, messages of a wrong form), kInvalidData where it
/// answers 500 (a message without a string role, malformed tools or tool calls, media), kUnsupported for limits.
Result<RewrittenRequest> rewrite_request(Runtime& runtime, std::string_view request_json,
                                         const Capabilities& capabilities);

/// Finds out what the template does. `constants` are its string variables (bos_token, …), as template text.
Capabilities probe_capabilities(const Template& parsed, std::string_view source,
                                const std::vector<std::pair<std::string, std::string>>& constants,
                                const RuntimeOptions& options);

}  // namespace tessera::jinja
