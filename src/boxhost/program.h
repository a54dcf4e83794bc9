/* program: boxhost's command line, from start to exit code. */
#pragma once

int boxhost_main(int argc, char **argv);
