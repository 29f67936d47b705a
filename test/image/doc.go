// Package image proves the image as it is shipped: its tests build it without any registry, look at every file in it, and run it with a
// real runtime as Kubernetes would, in the standard bench.
package image
