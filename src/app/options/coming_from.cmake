# Writes docs/coming_from.md as a C++ source: cmake -DFILE=... -DOUT=... -P coming_from.cmake
file(READ ${FILE} text)
file(WRITE ${OUT} "#include \"app/options/foreign_options.h\"\n\nnamespace muo::app {\n\n"
     "const std::string_view kComingFrom = R\"text(${text})text\";\n\n}  // namespace muo::app\n")
