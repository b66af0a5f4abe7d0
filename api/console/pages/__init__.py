"""The pages of the console, a file for each, with the forms that change something."""
