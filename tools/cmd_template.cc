// `tessera template`: the prompt that a chat template makes of a request.

#include "commands.h"
#include "common.h"

namespace tessera {

Status cmd_template(const ParsedFlags& flags) {
  ASSIGN_OR_RETURN(const std::string request, read_input(flags.get_string("messages")));
  ASSIGN_OR_RETURN(const std::shared_ptr<Model> model, load_vocabulary(flags));
  ASSIGN_OR_RETURN(const ChatTemplate chat_template, load_template(flags, *model));
  ASSIGN_OR_RETURN(const RenderedPrompt prompt, chat_template.render(request));
  return print_exactly(prompt.text);
}

}  // namespace tessera
