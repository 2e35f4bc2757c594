package binlog

// CharsetOf is charsetOf, for the tests of package binlog_test.
var CharsetOf = charsetOf
