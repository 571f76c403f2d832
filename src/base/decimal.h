#pragma once
// Floats as people write them.

namespace tessera {

/// The double whose shortest decimal form is that of `value`: 0.8 for 0.8F, which converted is 0.800000011920929. For
/// formats that know doubles alone, such as JSON; read back as a float it is `value`. What is not finite stays as it
/// is.
double as_written(float value);

}  // namespace tessera
