"""HTML, SVG and the files that every page needs."""
