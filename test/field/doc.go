// Package field runs the real binary through what was met in the field: translated node networks (NETMAP and DNAT in nat
// OUTPUT), and the faults that others reported of their own agents. docs/field-reports.md says which test shows what.
package field
