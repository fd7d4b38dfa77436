# Writes the page of `muograph report` as a C++ source: cmake -DFOLDER=... -DOUT=... -P page.cmake.
file(READ ${FOLDER}/page.html page)
foreach(file IN ITEMS style.css model.js charts.js options.js transfer.js page.js live.js)
  file(READ ${FOLDER}/${file} text)
  string(REPLACE "@${file}@" "${text}" page "${page}")
endforeach()
file(WRITE ${OUT} "#include \"kit/report/report_page.h\"\n\nnamespace muo::kit {\n\n"
     "const std::string_view kReportPage = R\"page(${page})page\";\n\n}  // namespace muo::kit\n")
