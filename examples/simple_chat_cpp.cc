// simple_chat.c in C++: answers one message and prints the answer as it comes.
//
//   simple_chat_cpp MODEL.gguf [MESSAGE [MOST_TOKENS]]
//
// c++ -std=c++17 simple_chat_cpp.cc $(pkg-config --cflags --libs tessera) -o simple_chat_cpp

#include <cstdio>
#include <cstdlib>
#include <tessera/tessera.hpp>

namespace {

void run(const std::string& path, const std::string& message, long most_tokens) {
  const tsr::Model model(path);
  const std::vector<int32_t> prompt = tsr::ChatTemplate(model).encode({{"user", message}});

  tsr::ContextOptions options;
  options.n_ctx = static_cast<int64_t>(prompt.size()) + 1024;
  tsr::Context context(model, options);
  tsr::Sampler sampler(model, tsr::SamplerOptions(model));
  sampler.accept(prompt);
  tsr::Stream stream(model);

  context.append(prompt);
  for (long n = 0; n < most_tokens; ++n) {
    const int32_t token = sampler.sample(context);
    sampler.accept({token});
    if (model.token(token).is_end) {
      break;
    }
    const std::string_view text = stream.push(token);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    context.append({token});
  }
  const std::string_view rest = stream.flush();
  std::fwrite(rest.data(), 1, rest.size(), stdout);
  std::puts("");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL.gguf [MESSAGE [MOST_TOKENS]]\n", argv[0]);
    return 2;
  }
  try {
    run(argv[1], argc > 2 ? argv[2] : "Why is the sky blue?", argc > 3 ? std::strtol(argv[3], nullptr, 10) : 1000);
    return 0;
  } catch (const tsr::Error& error) {
    std::fprintf(stderr, "%s: %s\n", tsr_status_name(error.status()), error.what());
    return 1;
  }
}
