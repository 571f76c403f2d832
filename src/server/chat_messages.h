#pragma once
// The messages of a chat request in OpenAI's form, before a template sees them.

#include "base/status.h"
#include "server/request_fields.h"

namespace tessera {

/// Checks field "messages": a list of objects with a role and with content that is text. body: the fields of the
/// request. Errors, which name the field: kInvalidArgument; kUnsupported: content that is no text, and calls in the
/// form that OpenAI had before there were tools.
Status check_messages(const Fields& body);

}  // namespace tessera
