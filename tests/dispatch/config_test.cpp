#include "csrc/dispatch/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace hipnorm {
namespace {

using ::testing::HasSubstr;

PartialConfig parsed(std::string_view text) {
  PartialConfig config;
  std::string error;
  EXPECT_TRUE(parse_config(text, config, error)) << text << ": " << error;
  return config;
}

std::string parse_error(std::string_view text) {
  PartialConfig config;
  config.config.parts = 77;  // must survive a failure
  std::string error;
  EXPECT_FALSE(parse_config(text, config, error)) << text;
  EXPECT_EQ(config.config.parts, 77);
  return error;
}

TEST(Config, PrintsTheVariantsOwnFieldsOnly) {
  Config config{.variant = Variant::cpu_backward_row};
  config.rows_per_block = 2;
  config.vec_bytes = 64;
  config.parts = 2;
  config.stream = 1;
  EXPECT_EQ(to_string(config), "cpu_backward_row:rows_per_block=2,vec_bytes=64,parts=2,stream=1");
  config = {.variant = Variant::cpu_forward_split};
  config.split = 4096;
  EXPECT_EQ(to_string(config), "cpu_forward_split:vec_bytes=0,split=4096,stream=0");
}

TEST(Config, IsReadAsItIsPrinted) {
  std::mt19937 random(7);
  for (std::size_t v = 0; v < variants().size(); ++v) {
    for (int i = 0; i < 100; ++i) {
      Config config{.variant = static_cast<Variant>(v)};
      for (const ConfigField& field : kConfigFields) {
        if ((variants()[v].*field.limits).high > 0) {
          config.*field.value = static_cast<int>(random() >> (1 + random() % 31));
        }
      }
      const PartialConfig back = parsed(to_string(config));
      EXPECT_EQ(back.config, config) << to_string(config);
      EXPECT_EQ(to_string(back), to_string(config));
      for (std::size_t f = 0; f < std::size(kConfigFields); ++f) {
        EXPECT_EQ(back.given[f], (variants()[v].*kConfigFields[f].limits).high > 0);
      }
    }
  }
}

TEST(Config, FieldsMayComeInAnyOrderAndBeLeftOut) {
  const PartialConfig config = parsed("cpu_backward_sums_first:stream=1,split=12");
  EXPECT_EQ(config.config.variant, Variant::cpu_backward_sums_first);
  EXPECT_EQ(config.config.stream, 1);
  EXPECT_EQ(config.config.split, 12);
  EXPECT_EQ(to_string(config), "cpu_backward_sums_first:split=12,stream=1");
  EXPECT_EQ(to_string(parsed("cpu_forward_row")), "cpu_forward_row");
}

TEST(Config, SaysWhatItCannotRead) {
  EXPECT_THAT(parse_error("cpu_sideways"), HasSubstr("unknown variant 'cpu_sideways'"));
  EXPECT_THAT(parse_error("cpu_sideways"), HasSubstr("cpu_forward_row, cpu_forward_split"));
  EXPECT_THAT(parse_error(""), HasSubstr("unknown variant ''"));
  EXPECT_THAT(parse_error("cpu_forward_row:split=2"),
              HasSubstr("cpu_forward_row has no field 'split'; its fields are rows_per_block, "
                        "vec_bytes, parts, stream"));
  EXPECT_THAT(parse_error("cpu_forward_row:width=2"), HasSubstr("no field 'width'"));
  EXPECT_THAT(parse_error("cpu_forward_row:parts=1,parts=1"), HasSubstr("'parts' is given twice"));
  for (const char* text : {"cpu_forward_row:", "cpu_forward_row:parts=1,", "cpu_forward_row:,"}) {
    EXPECT_THAT(parse_error(text), HasSubstr("expected field=value after cpu_forward_row")) << text;
  }
  for (const char* value : {"", "-1", "+1", "1.5", "0x2", "two", " 2", "2 ", "2147483648"}) {
    EXPECT_THAT(parse_error(std::string("cpu_forward_row:parts=") + value),
                HasSubstr(std::string("parts must be an integer from 0 to 2147483647, but is '") +
                          value + "'"));
  }
}

}  // namespace
}  // namespace hipnorm
