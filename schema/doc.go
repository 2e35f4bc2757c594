// Package schema says what an event is: the outbox table, its columns and
// layouts, and how one of its rows becomes an Event.
//
// It is pure: it knows neither MySQL's log nor RabbitMQ. Package binlog reads
// the table's columns and rows and hands them in as Columns and Values;
// package exchange makes a message of the Event that comes out.
//
// Invariant: a row either becomes exactly one Event, or Table.Event returns a
// *BadEventError that says why; no value is guessed, shortened or left out.
//
// Text of MySQL's other character sets becomes UTF-8 by UTF8, before it is a
// Value: binlog calls it for the log's rows and for the table's alike.
//
//	columns ──► NewTable ──► Table ──┐
//	                                 ├─► Table.Event ──► Event | *BadEventError
//	a row's Values ──────────────────┘
//
// Failures:
//
//	a needed column is missing or of a type that cannot serve    ErrTable, at start
//	a value is NULL, of the wrong form, or not in the row image  *BadEventError, at that row
package schema
