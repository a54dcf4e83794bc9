/* image_program: `boxhost --images …`, the images of a state folder from a command line. */
#pragma once

int image_main(int argc, char **argv);
